"""Results of other tools' benchmarks: vLLM, SGLang, AIPerf and nvbench."""
