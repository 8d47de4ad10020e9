"""The fuzzer's generator and its judgement, without a cluster."""
