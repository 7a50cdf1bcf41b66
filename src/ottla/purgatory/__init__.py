"""Operations that wait: pending answers, timers and the purgatory."""
