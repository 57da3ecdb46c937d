"""The live context of any host: what the model is sent, kept inside its window."""
