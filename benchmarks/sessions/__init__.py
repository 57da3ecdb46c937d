"""The makers of generated conversations, by subject. `benchmarks.generate` names what they offer."""
