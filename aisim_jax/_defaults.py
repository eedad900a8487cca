"""What a request means where it says nothing, for library and command alike."""

ISL_TOKENS = 4000
OSL_TOKENS = 1000
TTFT_MS = 2000.0
TPOT_MS = 30.0
TOP_N = 5  # deployments per serving mode
STEP_TOKENS = 8192  # of one forward pass
