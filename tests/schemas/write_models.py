#!/usr/bin/env python3
"""Writes models.json: the schemas that pydantic and the SDKs of OpenAI and Anthropic make of models, and, from
write_models.mjs, those of zod.

    python3 -m venv sdks && sdks/bin/pip install pydantic==2.14.4 openai==3.57.0 anthropic==2.14.0 email-validator==2.4.0
    (cd /tmp && npm install zod@4.6.7) && NODE_PATH=/tmp/node_modules sdks/bin/python tests/schemas/write_models.py
"""

import datetime
import decimal
import enum
import ipaddress
import json
import os
import pathlib
import subprocess
import uuid
from typing import Annotated, Any, Literal, Optional, Union

import anthropic
import openai
from openai.lib._pydantic import to_strict_json_schema
from pydantic import (AnyUrl, BaseModel, ConfigDict, EmailStr, Field, RootModel, TypeAdapter, conint, conlist, constr)

FOLDER = pathlib.Path(__file__).resolve().parent


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Priority(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Address(BaseModel):
    """Where someone lives."""
    street: str
    city: str = "Paris"
    postcode: constr(pattern=r"^\d{5}$")


class Person(BaseModel):
    name: str = Field(min_length=1, max_length=60)
    age: int = Field(ge=0, le=150)
    email: EmailStr | None = None
    address: Address
    tags: list[str] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(9, ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    breed: str | None = None


class Lizard(BaseModel):
    kind: Literal["reptile", "lizard"]
    scales: bool


class Owner(BaseModel):
    pet: Annotated[Union[Cat, Dog, Lizard], Field(discriminator="kind")]
    pets: list[Annotated[Union[Cat, Dog], Field(discriminator="kind")]] = Field(default_factory=list, max_length=3)


class Times(BaseModel):
    day: datetime.date
    at: datetime.datetime
    clock: datetime.time
    span: datetime.timedelta


class Ids(BaseModel):
    id: uuid.UUID
    version: Literal[1, 2, "latest", None]
    address: ipaddress.IPv4Address
    other: ipaddress.IPv6Address
    home: AnyUrl


class Numbers(BaseModel):
    ratio: float = Field(gt=0, lt=1)
    price: decimal.Decimal = Field(max_digits=8, decimal_places=2)
    even: int = Field(multiple_of=2)
    step: float = Field(ge=-1.5, le=1.5, multiple_of=0.25)


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


class Linked(BaseModel):
    value: str
    next: Optional["Linked"] = None


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int
    b: str | int | None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Collections(BaseModel):
    pair: tuple[int, str]
    triple: conlist(int, min_length=3, max_length=3)
    unique: set[str]
    few: set[Color]
    frozen: frozenset[int]
    mapping: dict[str, float]
    keyed: dict[constr(pattern="^[a-z]+$"), int]
    nested: dict[str, list[Address]]


class Enums(BaseModel):
    color: Color
    priority: Priority = Priority.LOW
    maybe: Color | None = None
    flag: Literal[True]


class Aliased(BaseModel):
    first_name: str = Field(alias="firstName", description="The first name", examples=["Ada"])
    weird: int = Field(alias='a "key" / with~signs')


class Anything(BaseModel):
    value: Any
    items: list[Any]
    map: dict


class Patterned(BaseModel):
    slug: str = Field(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$", max_length=40)
    phone: str = Field(pattern=r"^\+?[1-9]\d{1,14}$")
    path: str = Field(pattern=r'^"?[A-Z]:\\[^"<>|]{1,20}"?$')
    password: str = Field(min_length=8)
    hex: constr(pattern=r"^#[0-9a-fA-F]{6}$")


class Step(BaseModel):
    explanation: str
    output: str


class MathReasoning(BaseModel):
    steps: list[Step]
    final_answer: str


class Text(BaseModel):
    type: Literal["text"]
    text: str


class Image(BaseModel):
    type: Literal["image"]
    url: str
    detail: Literal["low", "high", "auto"] = "auto"


class Message(BaseModel):
    role: Literal["user", "assistant"]
    content: str | list[Annotated[Text | Image, Field(discriminator="type")]]


class Condition(BaseModel):
    column: str
    operator: Literal["=", ">", "<", "<=", ">=", "!="]
    value: str | int | float | bool


class Query(BaseModel):
    table: Literal["orders", "customers"]
    columns: list[str] = Field(min_length=1)
    conditions: list[Condition]
    order: Literal["asc", "desc"]


class Expression(BaseModel):
    left: Union["Expression", float]
    operator: Literal["+", "-"]
    right: Union["Expression", float]


class Ints(RootModel[list[conint(ge=0, lt=10)]]):
    pass


PYDANTIC = [Address, Person, Owner, Times, Ids, Numbers, Tree, Linked, Closed, Open, Collections, Enums, Aliased, Anything,
            Patterned, MathReasoning, Message, Query, Expression, Ints]
ADAPTED = {"list of models": list[Person], "union of scalars": int | str | None, "literals": Literal["a", 1, True],
           "map of unions": dict[str, Cat | Dog], "optional model": Optional[Address]}
STRICT = [Person, Owner, Tree, Enums, MathReasoning, Message, Query, Linked, Closed, Numbers]
TRANSFORMED = [Person, Times, Tree, Enums, MathReasoning, Message, Query, Numbers, Patterned, Linked]


def main():
    models = {f"pydantic {model.__name__}": model.model_json_schema() for model in PYDANTIC}
    models |= {f"pydantic {name}": TypeAdapter(kind).json_schema() for name, kind in ADAPTED.items()}
    models |= {f"openai {model.__name__}": to_strict_json_schema(model) for model in STRICT}
    tools = [openai.pydantic_function_tool(model) for model in (Query, Person)]
    models |= {f"openai tool {tool['function']['name']}": tool["function"]["parameters"] for tool in tools}
    models |= {f"anthropic {model.__name__}": anthropic.transform_schema(model) for model in TRANSFORMED}
    zod = subprocess.run(["node", FOLDER / "write_models.mjs"], env=os.environ, check=True, capture_output=True, text=True)
    models |= {f"zod {name}": schema for name, schema in json.loads(zod.stdout).items()}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(schema)}" for name, schema in models.items())
    (FOLDER / "models.json").write_text("{\n" + lines + "\n}\n")
    print(f"{len(models)} models")


if __name__ == "__main__":
    main()
