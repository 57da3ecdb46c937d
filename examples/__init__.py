"""The example session and the script that builds it."""
