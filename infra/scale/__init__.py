"""What Leasehook costs and how far it scales: a model, a simulation, and what they were measured against."""
