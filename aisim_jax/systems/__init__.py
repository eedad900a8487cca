"""Hardware specifications, measured tables, data roots and importers."""

from ._archive import verify_archive as verify_archive
from ._cache_folder import cache_folder as cache_folder
from ._catalogue import load_system as load_system
from ._catalogue import load_tables as load_tables
from ._catalogue import resolve_version as resolve_version
from ._catalogue import system_names as system_names
from ._listing import ProfileRecord as ProfileRecord
from ._listing import list_profiles as list_profiles
from ._perf_tables import PerfTables as PerfTables
from ._spec import SystemSpec as SystemSpec
from ._tables import AttentionKey as AttentionKey
from ._tables import AttentionTables as AttentionTables
from ._tables import BmmTable as BmmTable
from ._tables import CommTable as CommTable
from ._tables import GemmTable as GemmTable
from ._tables import MlaKey as MlaKey
from ._tables import MoeTable as MoeTable
from ._tables import MoeTables as MoeTables
from ._tables import QuantizeTable as QuantizeTable
from ._tables import RaggedGrid as RaggedGrid
from .importing import import_facts as import_facts
from .importing import import_tables as import_tables
