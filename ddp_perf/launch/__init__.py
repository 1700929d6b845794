"""The driver's side of a launch, and the forkserver that starts ranks."""
