"""The history database: it stores every session and finds steps and drifts in a series of them."""
