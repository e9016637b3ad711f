"""Export of trained models to Hugging Face folders.

A standard GPT-2 or Llama loads without any code of ours. For other models, the folder includes
`modeling_paribus.py` and custom modules, which transformers loads with `trust_remote_code=True`.
Exporting does not require transformers.
"""

from paribus.engine.export.folder import export_trial

__all__ = ["export_trial"]
