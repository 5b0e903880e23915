"""Who a client is: principals, SASL mechanisms. What it may do is the controller's and brokers' authorizer's."""
