"""Memory that the ranks of one machine share: made, registered, watched and tuned."""
