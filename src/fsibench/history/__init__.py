"""Speed, memory and quality of commits: two compared by `fsibench gate`, many by `fsibench history`."""
