"""The state of the peers and of past calls: failures, records, timelines, stacks."""
