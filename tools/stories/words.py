"""The lexicon of the little stories: who, where, what, and the weather.

Everything here is data. A `Kind` says what a sort of character lives in, walks like and is good at; a `Place` lists what
stands there. The grammar picks from these tables once per story and then only repeats what it picked, which is what makes
a story consistent.
"""

from collections import namedtuple

GIRLS = """Lily Mia Alice Rosa Ella Nora Ruby Daisy Hazel Ivy Luna Poppy Tess Wren Anna Clara Maya Penny Sophie Molly Zoe Bella
Emma Lucy Amy Sara Holly Jade Kira Lena Nina Olive Pearl Rosie Stella Tilly Vera Willa Dora Greta Fern Mabel Nell Edie
Freya Ada Cora Flora Anne Mary Jane""".split()

BOYS = """Tom Ben Bob Max Sam Leo Finn Jack Tim Oscar Milo Theo Hugo Otis Felix Jasper Toby Rory Eli Noah Owen Gus Archie Henry
Louis Charlie Barney Rufus Alfie Ned Ralph Walter Simon Peter Paul Oliver Jonah Ivan Harry George Fred Edgar Dan Bruno
Albert Victor Wilbur Percy John Jim""".split()

# Names that only an animal has; either gender.
PET_NAMES = """Pip Bramble Clover Biscuit Maple Nutmeg Pepper Ginger Tumble Patch Whisker Twig Fidget Bumble Thistle Moss
Dusty Sunny Misty Sparky Cricket Pudding Waffle Pickle Peanut Marble Snowy Dapple Freckle Juniper Basil Rusty Coco
Toffee""".split()

# Syllables of made-up names: they teach a model to copy a name it has never seen.
NAME_STARTS = """Ba Be Bi Bo Da De Do Fa Fi Ga Go Hu Ja Jo Ka Ki Ko La Le Lo Ma Me Mi Mo Na Ne No Pa Pe Po Ra Ri Ro Sa Se
Ta Ti To Va Vi Wa Wo Ya Zo Zu Zor Bri Cla Dro Fli Gra Kla Plo Sni Sto Tri Mar Len Ol Al An El Is Ur""".split()
NAME_MIDDLES = ["", "", "ba", "be", "da", "di", "fi", "go", "ka", "ke", "li", "lo", "mi", "mu", "no", "pe", "ra", "ri", "so", "ti", "vo", "zu"]
GIRL_ENDS = "ce ka la lia lle na nia nne ra ria sa ssa ta tha".split()
BOY_ENDS = "b bo ck do g go ko lo mbo n rk s ster to x".split()

TRAITS = """brave kind curious gentle cheerful clever quiet shy playful careful busy friendly dreamy merry
stubborn helpful lively""".split()

# noun, where it lives, its hands, how it goes (past), what it is good at.
Kind = namedtuple("Kind", "noun home hands went skills")


def _kinds(*rows):
    return [Kind(noun, home, hands, went, frozenset(skills.split())) for noun, home, hands, went, skills in rows]


KINDS = _kinds(
    ("fox", "den", "paws", "trotted", "nose fast"),
    ("rabbit", "burrow", "paws", "hopped", "dig fast"),
    ("mouse", "tiny house", "paws", "scurried", "tiny"),
    ("squirrel", "tree house", "paws", "scampered", "climb"),
    ("bear", "cave", "paws", "walked", "strong"),
    ("hedgehog", "nest of leaves", "paws", "pottered", "nose tiny"),
    ("badger", "burrow", "paws", "marched", "dig strong build"),
    ("mole", "tunnel", "paws", "shuffled", "dig tiny"),
    ("otter", "den", "paws", "padded", "swim"),
    ("beaver", "lodge", "paws", "waddled", "swim build"),
    ("frog", "mud house", "feet", "hopped", "swim"),
    ("duck", "nest", "wings", "waddled", "swim"),
    ("turtle", "mud house", "feet", "plodded", "swim"),
    ("kitten", "basket", "paws", "padded", "climb"),
    ("puppy", "kennel", "paws", "bounded", "nose fast"),
    ("pony", "stable", "hooves", "trotted", "strong fast"),
    ("goat", "shed", "hooves", "skipped", "strong"),
    ("donkey", "stable", "hooves", "plodded", "strong"),
    ("lamb", "stable", "hooves", "skipped", ""),
    ("pig", "sty", "feet", "trotted", "nose"),
    ("raccoon", "hollow log", "paws", "crept", "climb build"),
    ("monkey", "tree house", "hands", "swung", "climb"),
    ("deer", "thicket", "hooves", "trotted", "fast"),
    ("dragon", "cave", "claws", "stomped", "strong"),
    ("elf", "tree house", "hands", "skipped", "build tiny"),
    ("robot", "shed", "hands", "rolled", "build strong"),
    ("penguin", "snow house", "wings", "waddled", "swim"),
)
BIRDS = _kinds(
    ("owl", "nest", "wings", "flew", "fly"),
    ("robin", "nest", "wings", "flew", "fly"),
    ("sparrow", "nest", "wings", "flew", "fly tiny"),
    ("crow", "nest", "wings", "flew", "fly"),
    ("swallow", "nest", "wings", "flew", "fly fast"),
)
GIRL = Kind("girl", "house", "hands", "walked", frozenset())
BOY = Kind("boy", "house", "hands", "walked", frozenset())

# the = "the forest", inn = "in the forest"; tree, water and spots stand in it ("by {spot}", "behind {spot}", "near {spot}").
Place = namedtuple("Place", "the inn tree water spots")


def _places(*rows):
    return [Place(the, inn, tree, water, spots.split(", ")) for the, inn, tree, water, spots in rows]


PLACES = _places(
    ("the forest", "in the forest", "the old oak tree", "the stream",
     "the mossy log, the blackberry bush, the fallen tree, the big gray rock, the hollow stump"),
    ("the meadow", "in the meadow", "the tall poplar tree", "the little pond",
     "the wooden gate, the daisy patch, the stone wall, the haystack, the beehive"),
    ("the village", "in the village", "the chestnut tree", "the duck pond",
     "the old well, the bakery, the stone bridge, the clock tower, the mill"),
    ("the farm", "on the farm", "the apple tree", "the duck pond",
     "the red barn, the henhouse, the haystack, the vegetable patch, the old cart"),
    ("the beach", "by the sea", "the bent pine tree", "the sea",
     "the lighthouse, the big flat rock, the wooden pier, the sand dunes, the fishing boat"),
    ("the riverbank", "by the river", "the willow tree", "the river",
     "the wooden bridge, the water wheel, the tall reeds, the flat stones, the ferry boat"),
    ("the mountain", "on the mountain", "the crooked pine tree", "the waterfall",
     "the stone hut, the sheepfold, the big boulder, the goat pen, the cave"),
    ("the garden", "in the garden", "the plum tree", "the fish pond",
     "the rose bush, the greenhouse, the garden shed, the stone fountain, the wheelbarrow"),
    ("the island", "on the island", "the palm tree", "the blue lagoon",
     "the sandy cove, the old boat, the coconut pile, the round rock, the bamboo hut"),
    ("the town", "in the town", "the cherry tree", "the canal",
     "the market, the town hall, the library, the train station, the park bench"),
    ("the valley", "in the valley", "the big walnut tree", "the winding stream",
     "the old mill, the hazel bush, the stone bridge, the sheep pen, the wooden fence"),
    ("the green hill", "on the green hill", "the lone elm tree", "the spring",
     "the windmill, the stone wall, the old gate, the gorse bush, the round tower"),
    ("the lake", "by the lake", "the birch tree", "the lake",
     "the boathouse, the wooden pier, the tall reeds, the rowing boat, the fishing hut"),
    ("the orchard", "in the orchard", "the pear tree", "the duck pond",
     "the long ladder, the beehive, the wooden fence, the apple barrels, the tool shed"),
)

COLORS = "red blue green yellow purple orange white pink".split()
THINGS = {  # category: (adjectives, nouns)
    "toy": (COLORS + "striped spotted wooden".split(),
            "ball, kite, drum, doll, hoop, whistle, toy boat, toy train, spinning top, puppet".split(", ")),
    "wear": (COLORS + "woolly striped soft".split(), "hat, scarf, cap, coat, ribbon, cloak".split(", ")),
    "treasure": ("blue green purple white pink shiny tiny silver golden smooth".split(),
                 "shell, bell, key, coin, stone, marble, ring, crystal".split(", ")),
    "tool": (COLORS + "old little big".split(), "basket, lantern, bucket, wagon, pot, jug".split(", ")),
    "vase": (COLORS + "old round painted".split(), "vase, bowl, plate, teapot, jar, cup".split(", ")),
    "book": (COLORS + "old thick little".split(), "book, map, letter, card, picture".split(", ")),
}

FOODS = """honey cakes, blackberry pie, warm bread, apple tart, carrot soup, cherry jam, oat biscuits, strawberry cake,
pumpkin soup, roasted chestnuts, plum pudding, nut cookies, sweet pancakes, mushroom stew, cheese rolls, ginger cookies,
pear pie, barley soup""".replace("\n", " ").split(", ")

LIKES = """to sing, to paint, to climb hills, to look at the stars, to splash in puddles, to tell jokes, to collect leaves,
to pick flowers, to dance, to play hide and seek, to listen to stories, to watch the clouds, to bake, to draw maps,
to count the stars, to run in the wind, to chase butterflies, to build things, to read, to hum little songs,
to make new friends, to explore""".replace("\n", " ").split(", ")

Weather = namedtuple("Weather", "day sky")
WEATHER = {
    "fair": [
        Weather("sunny", "The sun was shining and the sky was blue."),
        Weather("warm", "The air was warm and smelled of flowers."),
        Weather("bright", "The birds were singing and the bees were humming."),
        Weather("breezy", "A soft breeze was blowing and small white clouds sailed by."),
        Weather("fresh", "The grass was still wet with dew and everything smelled fresh."),
        Weather("golden", "The leaves were golden and the light was soft."),
    ],
    "windy": [
        Weather("windy", "The wind was blowing hard and the leaves were dancing."),
        Weather("gusty", "The wind pulled at everything and the clouds raced by."),
    ],
    "cold": [
        Weather("snowy", "Snow was falling and the ground was white."),
        Weather("frosty", "Frost was sparkling on every twig and the air was cold."),
        Weather("chilly", "The air was chilly and the sky was pale."),
    ],
    "wet": [
        Weather("rainy", "Rain was falling and there were puddles everywhere."),
        Weather("gray", "The sky was gray and small drops of rain were falling."),
        Weather("misty", "A soft mist lay over everything and it was very quiet."),
    ],
    "hot": [
        Weather("hot", "The sun was burning and there was not a cloud in the sky."),
        Weather("dry", "It had not rained for weeks and the ground was dry."),
    ],
}
