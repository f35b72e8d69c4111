"""What training a decoder takes on a cluster, by layout: memory, communication, time of a step."""
