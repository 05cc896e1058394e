"""Any causal language model of transformers behind the interface of our own model (`model.impl = "transformers"`)."""
