"""The work gate: count the step of each case, judge the counts, and name the line that did it."""
