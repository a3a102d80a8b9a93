"""Who asks: API keys, the tenants behind them, and the scope in which each tenant caches."""
