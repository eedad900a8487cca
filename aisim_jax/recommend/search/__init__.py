"""Which deployment to run, by replaying every candidate that could win."""

from ._files import candidate_ids as candidate_ids
from ._files import flat_settings as flat_settings
from ._files import prediction_yaml as prediction_yaml
from ._files import ranking_records as ranking_records
from ._files import recommendation_csv as recommendation_csv
from ._files import recommendation_record as recommendation_record
from ._files import write_recommendation as write_recommendation
from ._files import yaml_names as yaml_names
from ._pool import Shape as Shape
from ._records import Branch as Branch
from ._records import Candidate as Candidate
from ._records import Coverage as Coverage
from ._records import Dropped as Dropped
from ._records import Knobs as Knobs
from ._records import Outcome as Outcome
from ._records import Recommendation as Recommendation
from ._records import RoleSetting as RoleSetting
from ._run import Plan as Plan
from ._run import plan_record as plan_record
from ._run import plan_search as plan_search
from ._run import recommend as recommend
from ._score import Goal as Goal
from ._score import Verdict as Verdict
from ._store import JOURNAL as JOURNAL
