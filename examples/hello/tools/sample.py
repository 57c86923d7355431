"""A tool as a plain function: the input object comes in, the output object goes out."""


def greet(payload: dict) -> dict:
    return {"message": f"Hello {payload['name']}"}
