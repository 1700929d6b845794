"""The rule: is this session slower than the baseline, and how certain is that?"""
