"""Tables, units and numbers: the parts that every text is made of."""
