"""Reading the reference's data: trees, source resolution, row rules, conversion."""

from ._families import FAMILIES as FAMILIES
from ._import import import_facts as import_facts
from ._import import import_from_tree as import_from_tree
from ._import import import_tables as import_tables
from ._slots import declared_versions as declared_versions
from ._slots import tree_slots as tree_slots
from ._spec_facts import tree_spec as tree_spec
from ._tree import SystemsTree as SystemsTree
from ._tree import find_systems_folder as find_systems_folder
from ._tree import folder_tree as folder_tree


FAMILY_FOLDERS = tuple(dict.fromkeys(family.folder for family in FAMILIES))
