"""Many ranks: each is read by itself, on workers of Dask where asked for, and then joined."""
