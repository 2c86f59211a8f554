from hypothesis import settings

# What a shared machine is busy with says nothing about an example.
settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")
