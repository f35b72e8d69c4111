"""Counters of a device every 100 microseconds of the profiled steps, by CUPTI's PM sampling.

Another process samples: its CUPTI may be newer than the program's, which torch holds.
"""
