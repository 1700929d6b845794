"""The probe: it measures the terms of a step on further steps, after the timed ones."""
