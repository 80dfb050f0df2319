"""Learning-rate schedules, one file each: values of ``train.schedule``."""
