"""The audit of the gate: a session ends with launches that a hidden size slows on purpose."""
