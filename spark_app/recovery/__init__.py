"""Decode again what is in the lake: `replay` what is in quarantine, `rebuild` what silver and gold should hold."""
