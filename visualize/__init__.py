"""Pictures and event texts from traces. Knows nothing of models, tensors or pages."""
