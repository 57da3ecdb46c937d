"""The imperative shell: what hosts call."""
