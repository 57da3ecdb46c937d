"""The gateway: an HTTP server in front of any OpenAI- or Anthropic-compatible API that keeps conversations in the window."""
