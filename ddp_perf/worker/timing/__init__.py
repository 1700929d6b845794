"""Clocks of the device and of the host thread, warm-up and the control."""
