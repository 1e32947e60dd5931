"""The chief's side: calls in a queue, who has which, and what comes back."""
