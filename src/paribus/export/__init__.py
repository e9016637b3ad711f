"""The way out: a trained trial as a Hugging Face folder that anybody's tools load.

A baseline becomes a plain GPT-2. An arm with an embedding norm brings the few lines that GPT-2
lacks (`modeling_paribus.py`), for `trust_remote_code`. Nothing here needs transformers.
"""

from paribus.export.trial import export_trial

__all__ = ["export_trial"]
