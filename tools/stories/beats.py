"""Beats shared by many plots, and the openings. Marks are those of grammar.py; h is the hero, f the friend, e the elder."""

# (first paragraph, how the second one begins). An opening that already says "one day" is followed by the sky alone.
_DAY = "<day>"
_SKY = "{w.sky}"
OPENINGS = [
    ("Once upon a time, there was {h.a_little} named {h}. <lived> <liked>", _DAY),
    ("Once upon a time, {p.inn}, there lived {h.a_little} named {h}. <liked>", _DAY),
    ("Once upon a time, there lived a little {h.kind} named {h}. {h} was very {h.trait}. <lived>", _DAY),
    ("Once there was a little {h.kind} whose name was {h}. <lived> {h} was {h.trait}, and {h.he} liked {like}.", _DAY),
    ("There was once {h.a_little} called {h}. <lived> <liked>", _DAY),
    ("There was a little {h.kind} named {h}. {h.He} was {h.trait} and {h.he} loved {like}. <lived>", _DAY),
    ("Long ago, {p.inn}, there lived {h.a_little} named {h}. <liked>", _DAY),
    ("Long, long ago there was {h.a_little} called {h}. <lived>", _DAY),
    ("{h} was {h.a_little}. <lived> <liked>", _DAY),
    ("A little {h.kind} named {h} lived {p.inn}. {h.He} was very {h.trait}. <liked>", _DAY),
    ("Far, far away, {p.inn}, lived {h.a_little} named {h}. <liked>", _DAY),
    ("The little {h.kind} {h} lived {p.inn}. {h.He} was very {h.trait}, and {h.he} liked {like}.", _DAY),
    ("The {h.trait} little {h.kind} who lived by {s1} was called {h}. <liked>", _DAY),
    ("This is the story of {h.a_little} named {h}. <lived> <liked>", _DAY),
    ("Everyone {p.inn} knew {h}, the {h.trait} little {h.kind}. <liked>", _DAY),
    ("One day, {h.a_little} named {h} went for a walk {p.inn}. <liked>", _SKY),
    ("One {w.day} {tod}, a little {h.kind} named {h} was playing {p.inn}. {h} was {h.trait}, and {h.he} liked {like}.", _SKY),
    ("One {w.day} {tod}, {h.a_little} called {h} was sitting by {s1}. <liked>", _SKY),
    ("It was a {w.day} {tod} {p.inn}. {h}, {h.a_little}, was already awake. <liked>", _SKY),
    ("Early one day, a little {h.kind} named {h} came out of {h.his} {h.home}. {h.He} was {h.trait}, and {h.he} loved {like}.",
     _SKY),
]

BEATS = {
    "lived": [
        "{h.He} lived in a [small|cozy|snug] {h.home} {p.inn}.",
        "{h.His} home was a [small|cozy|snug] {h.home} {p.inn}, near {s1}.",
        "{h.He} lived {p.inn} with {h.his} [mother and father|family|two brothers|three sisters].",
        "{h.He} lived in a {h.home} by {s1}, {p.inn}.",
    ],
    "liked": [
        "{h} [loved|liked] {like}.",
        "More than anything, {h.he} loved {like}.",
        "{h} liked {like}, and {h.he} liked to eat {food}.",
        "Every day, {h.he} liked {like}.",
        "Everyone said that {h} had a good heart. {h.He} loved {like}.",
    ],
    "day": [
        "One {w.day} {tod}, {h} [came out of {h.his} {h.home}|looked outside|went outside|set off for a walk]. {w.sky}",
        "One day, {h} woke up early. {w.sky}",
        "It was a {w.day} {tod}. {w.sky}",
        "One {tod}, {h} {h.went} to {s1}. {w.sky}",
        "Then came a {w.day} {tod}. {w.sky}",
    ],
    "meet": [
        "Just then, {f.a} named {f} came [by|along].",
        "[Soon|After a while], {f.a} named {f} came [by|along the path].",
        "Near {s2}, {h.he} met {f.a} named {f}.",
        "At that moment, {h} heard a voice. It was {f}, {f.a}.",
        "By {s2} sat {f.a}. {f.His} name was {f}.",
    ],
    "ask": [
        '"[Why are you so {mood}|Why do you look so {mood}|What is wrong|What is the matter]?" asked {f}.',
        '"Hello," said {f}. "[Why are you so {mood}|What is wrong|What is the matter]?"',
        '{f} saw that {h} was {mood}. "[What happened|What is wrong]?" {f.he} asked.',
    ],
    "tell": [
        "{h} told {f} [everything|the whole story|all about it].",
        '{h} [sighed|sniffed] and told {f} what had happened.',
        "So {h} sat down and told {f} [everything|all about it].",
    ],
    "offer": [
        '"[Do not worry|Do not be {mood}|Cheer up]," said {f}. "[I can help you|I will help you|We can do it together]."',
        '"[I know what to do|I have an idea]!" said {f}. "[Come with me|Let us try together|I will help you]."',
        '{f} thought for a moment. "[I think I can help|I have an idea]," {f.he} said [kindly|softly|with a smile].',
    ],
    "help": ["<meet> <ask> <tell> <offer>"],
    "thanks": [
        '"Thank you, {f}!" said {h}. "[You are a true friend|You are very kind|I could not have done it without you]."',
        '"Oh, thank you!" [cried|said] {h}. "You are welcome," said {f} [with a smile|kindly].',
        '{h} [gave {f} a big hug|hugged {f} tightly]. "[Thank you for your help|Thank you so much], {f}," {h.he} said.',
    ],
    "happy": [
        "{h} was so happy that {h.he} [danced around {s2}|jumped up and down|laughed out loud].",
        "{h} was not {mood} any more. {h.He} [smiled|laughed] from ear to ear.",
        "Now {h} did not feel {mood} at all.",
        "{h}'s heart felt warm and light.",
    ],
    "share": [
        "Then {h} and {f} sat down by {s3} and shared some {food}.",
        "They sat near {s3} and ate {food} together.",
        "{h} brought some {food}, and the two friends ate by {s3}.",
    ],
    "proud": [
        '"[Well done|I am proud of you], {h}," said {e}.',
        '{e} smiled at {h}. "I am very proud of you," {e.he} said.',
    ],
    "end": [
        "From that day on, {h} and {f} were [best friends|the best of friends|good friends]. The end.",
        "And from that day on, {h} and {f} [played together every day|met by {s2} every day|did everything together].",
        "When the sun went down, {h} {h.went} home to {h.his} {h.home} and fell asleep with a smile.",
        "That night, {h} lay in bed in {h.his} {h.home} and thought of {f}. Then {h.he} fell fast asleep. The end.",
        "And so {h}, the {h.trait} little {h.kind}, lived happily ever after.",
        "And they all lived happily ever after. The end.",
        "In the evening the stars came out over {p.the}, and {h} was the happiest {h.kind} of all. The end.",
        "After that, everyone {p.inn} knew {h} as the {h.trait} little {h.kind} with the big heart. The end.",
    ],
}
