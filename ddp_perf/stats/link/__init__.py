"""The latency and the bandwidth of a link, modelled and fitted."""
