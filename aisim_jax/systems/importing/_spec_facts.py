"""A system's facts (YAML of a reference tree) to a SystemSpec."""

from __future__ import annotations

from ..._errors import InvalidInputError
from .._spec import SystemSpec
from ._tree import SystemsTree


TENSOR_FLOPS = "_tc_flops"


def tree_spec(tree: SystemsTree, system: str) -> SystemSpec:
    """Specification of `system`; a missing required figure is an error."""
    facts = tree.facts(f"{system}.yaml")
    try:
        gpu, node, misc = facts["gpu"], facts["node"], facts["misc"]
        rack_bw = node.get("inter_rack_bw")
        return SystemSpec(
            name=system,
            mem_bw_bytes_per_s=float(gpu["mem_bw"]),
            mem_bw_efficiency=float(gpu["mem_bw_empirical_scaling_factor"]),
            mem_latency_s=float(gpu["mem_empirical_constant_latency"]),
            mem_capacity_bytes=int(gpu["mem_capacity"]),
            tensor_flops={
                name.removesuffix(TENSOR_FLOPS): float(rate)
                for name, rate in gpu.items()
                if name.endswith(TENSOR_FLOPS)
            },
            sm_version=int(gpu.get("sm_version", 0)),
            power_w=float(gpu["power"]),
            gpus_per_node=int(node["num_gpus_per_node"]),
            intra_node_bw_bytes_per_s=float(node["intra_node_bw"]),
            inter_node_bw_bytes_per_s=float(node["inter_node_bw"]),
            p2p_latency_s=float(node["p2p_latency"]),
            nccl_version=str(misc["nccl_version"]),
            nccl_mem_bytes={int(n): int(size) for n, size in misc["nccl_mem"].items()},
            other_mem_bytes=int(misc["other_mem"]),
            gpus_per_rack=node.get("num_gpus_per_rack"),
            inter_rack_bw_bytes_per_s=None if rack_bw is None else float(rack_bw),
        )
    except (KeyError, TypeError) as error:
        path = tree.root / f"{system}.yaml"
        raise InvalidInputError(
            f"{path} lacks {error}; give a complete system file"
        ) from error
