"""What is known of past calls and of ranks that do not come: records, timelines, stacks."""
