"""What an interpreter is: its version, its platform, its torch."""

answer(lambda job: facts())
