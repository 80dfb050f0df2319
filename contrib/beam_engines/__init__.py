"""Jobs on engines outside this process: runs, follows and cancels them; checks their workers."""
