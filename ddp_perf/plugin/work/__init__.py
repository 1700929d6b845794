"""Work tests in pytest: count the step of each case, and assert that it does what is stored."""
