"""Many ranks of one job: each reduced to a `RankSummary`, everything else computed from those."""
