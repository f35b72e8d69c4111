"""What hardware counters say, beside what the models say."""
