"""The plots. Each is what happens between an opening and an ending; the marks in the texts are those of grammar.py.

State a plot may use: h hero, f friend, g another animal or child, e elder, o the thing, p place, tree and water in it,
s1 s2 s3 spots, w weather, mood, food, like, and its own slots (the parts of a slot `seed` that is a tuple are {seed0},
{seed1}, ...). Every plot brings in {f} before it ends, since the endings
speak of {f}, and names {e} and {g} with their kinds when they first appear.
"""

from dataclasses import dataclass, field

SAD = ("sad", "upset", "worried")
AFRAID = ("afraid", "scared", "frightened")
CROSS = ("cross", "angry", "grumpy")
LONELY = ("lonely", "sad", "shy")


@dataclass(frozen=True)
class Plot:
    """What happens in a story: texts of the paragraphs after the opening, and what the state must provide for them."""

    name: str
    beats: tuple  # the paragraphs; the first follows a sentence about the day
    moral: str  # opens the last paragraph, before an ending
    like: str = ""  # what a hero of this plot likes most of the time, so that an opening hints at its plot
    moods: tuple = SAD
    weather: tuple = ("fair",)
    thing: str = "toy"  # a category of words.THINGS
    nouns: tuple = ()  # narrows the category
    skills: tuple = ()  # the friend has one of these and the hero has none
    hero_lacks: tuple = ()  # more skills that the hero has not
    slots: dict = field(default_factory=dict)  # name: options, or a mapping from the friend's skill to the text


PLOTS = [
    Plot(
        "lost_thing", thing="treasure", skills=("fly", "nose"),
        slots={"find": {
            "fly": "{f} flew high above {p.the} and looked down with sharp eyes",
            "nose": "{f} put {f.his} nose to the ground and sniffed and sniffed"}},
        beats=(
            "{h} wanted to play with {h.his} {o}, but [it was gone|{h.he} could not find it]. {h.He} [loved|liked] the {o.n} "
            "very much, because {e} had given it to {h.him}. {h} was {mood}.",
            "{h} looked behind {s1}. [The {o.n} was not there|No {o.n}]. {h.He} looked near {s2}. It was not there either. "
            "\"Where can my {o} be?\" {h.he} [cried|asked]. <help>",
            "{find}. \"[I see something {o.adj}|There it is]!\" {f} [cried|called]. \"It is by {s3}!\" {h} ran to {s3}. There, in "
            "the [grass|leaves], lay {o.the}. <happy> <thanks>",
        ),
        moral="{h} [put the {o.n} in a safe place|took good care of the {o.n}] after that. {h.He} had learned that [friends can "
        "find what one alone cannot|two can look better than one].",
    ),
    Plot(
        "stuck_in_tree", like="to watch the clouds", thing="toy", nouns=("kite", "ball", "hoop", "puppet"), skills=("climb", "fly"), weather=("windy",),
        slots={"get": {
            "climb": "{f} climbed up {tree}, branch by branch",
            "fly": "{f} spread {f.his} wings and flew to the top of {tree}"}},
        beats=(
            "{h} went out to play with {h.his} {o}. Suddenly the wind [took|lifted] the {o.n} and carried it away. It got stuck "
            "high up in {tree}. \"Oh no, my {o.n}!\" cried {h}.",
            "{h} jumped as high as {h.he} could, but {tree} was too tall. {h.He} [shook the tree|threw a stick], but the {o.n} did "
            "not fall. {h} sat down under {tree} and felt {mood}. <help>",
            "{get}. {f.He} pulled and pulled until {o.the} was free. \"Catch!\" called {f}, and the {o.n} dropped right into "
            "{h}'s {h.hands}. <thanks> <happy> <share>",
        ),
        moral="{h} learned that [it is good to ask for help|everyone is good at something].",
    ),
    Plot(
        "broken_toy", thing="toy", nouns=("toy boat", "toy train", "drum", "kite", "doll", "puppet"), skills=("build", "tiny"),
        slots={"fix": {
            "build": "{f} took a little wood, some string and a pot of glue",
            "tiny": "{f} was so small that {f.he} could reach every little part with {f.his} {f.hands}"}},
        beats=(
            "{h} was playing with {h.his} {o} by {s1}. {h.He} [ran too fast|was not careful] and fell over a stone. Crack! {o.The} "
            "was broken. {h} looked at the pieces and was very {mood}.",
            "First {h} tried to tie the pieces together, but they fell apart. Then {h.he} tried to stick them with mud, but the mud "
            "was too wet. <help>",
            "{fix}. {f} worked slowly and {h} held the pieces. \"[Slow and steady|One piece at a time],\" said {f}. At last "
            "{o.the} was whole again. It was even [better|stronger] than before. <thanks> <happy>",
        ),
        moral="{h} promised to be more careful. {h.He} had learned that [broken things can be mended|a friend can mend more than a "
        "toy].",
    ),
    Plot(
        "lost_baby", like="to play hide and seek", moods=AFRAID, skills=("nose", "fly"),
        slots={
            "baby": [("chick", "mother hen", "the henhouse"), ("lamb", "mother sheep", "the field"),
                     ("duckling", "mother duck", "the nest"), ("kitten", "mother cat", "the warm basket"),
                     ("piglet", "mother pig", "the sty")],
            "find": {"nose": "{f} sniffed the ground and found a trail", "fly": "{f} flew up and looked all around"}},
        beats=(
            "Near {s1}, {h} heard a small voice. It was crying. {h} looked behind {s1} and found a tiny {baby0}. "
            "\"I am lost,\" said the {baby0}. \"I want to go home to my mother.\" The poor {baby0} was {mood}.",
            "\"Do not cry,\" said {h}. \"I will help you find your mother.\" They walked to {s2}, but the {baby1} was not there. "
            "<meet> \"Have you seen a {baby1}?\" asked {h}. \"No,\" said {f}, \"but I can help you look.\"",
            "{find}. \"This way!\" {f} [called|said]. They went past {s3} and across a small field. There stood {baby2}, and the "
            "{baby1} was waiting. \"My baby!\" she cried. The little {baby0} ran to her as fast as it could. "
            "\"Thank you, {h}! Thank you, {f}!\" said the {baby1}.",
        ),
        moral="The {baby0} was not {mood} any more, and {h} felt warm inside. {h.He} knew now that [helping others makes you "
        "happy|kind deeds make the heart glad].",
    ),
    Plot(
        "afraid_of_dark", moods=AFRAID, thing="tool", nouns=("lantern",),
        beats=(
            "{h} played all day, but when the sky grew dark {h.he} felt {mood}. {h} did not like the dark. Every shadow looked like "
            "a monster to {h.him}.",
            "\"They say there is nothing to fear, but I am still {mood},\" said {h}. <meet> \"Why are you hiding?\" asked {f}. "
            "\"I am {mood} of the dark,\" whispered {h}. {f} did not laugh. {f.He} brought {o.a} and lit it. \"Come, I want to show "
            "you something,\" {f.he} said.",
            "They walked to {s2}. \"Look, a monster!\" cried {h}. {f} held up the {o.n}. It was only {s2}. They walked to {s3}. "
            "\"Listen, a ghost!\" said {h}. It was only [the wind|a sleepy bird]. Then {f} put out the {o.n}. \"Now look up,\" said "
            "{f}. Above them shone a thousand stars. {h} had never seen anything so beautiful.",
        ),
        moral="{h} was not {mood} of the dark any more. {h.He} had learned that [the dark is full of stars|things are not as scary "
        "when you look at them].",
    ),
    Plot(
        "afraid_of_water", moods=AFRAID, skills=("swim",), weather=("fair", "hot"),
        beats=(
            "All the others went to {water} to swim. But {h} stayed by {s1}. {h.He} was {mood} of the water. \"What if it is too "
            "deep?\" {h.he} thought.",
            "<meet> {f} was a very good swimmer. \"Why do you not swim?\" asked {f}. \"I am {mood},\" said {h}. \"I was {mood} too, "
            "once,\" said {f}. \"[I can teach you|Let me show you]. We will start where the water is low.\"",
            "On the first day, {h} put only {h.his} feet in {water}. On the second day, {h.he} went in up to {h.his} knees. On the "
            "third day, {f} held {h} and said, \"Kick your legs!\" {h} kicked and kicked. Then {f} let go. {h} was swimming! "
            "\"Look at me!\" {h} shouted. \"I can swim!\" <thanks>",
        ),
        moral="{h} was not {mood} of the water any more. {h.He} had learned that [being brave means trying even when you are "
        "{mood}|big things are done in little steps].",
    ),
    Plot(
        "share_toy", moods=CROSS, thing="toy",
        beats=(
            "{h} had {o.a}, and {h.he} was very proud of it. <meet> \"What a fine {o.n}!\" said {f}. \"May I play with it?\" \"No,\" "
            "said {h}. \"It is mine.\" {f} looked sad and went away.",
            "{h} played with {o.the} alone. At first it was fun. But soon it was [boring|dull]. There was nobody to [laugh|play] with. "
            "{h} felt {mood}. {e} sat down next to {h.him}. \"[A toy is only half as much fun alone|Joy grows when you share "
            "it],\" said {e}.",
            "{h} thought about it. Then {h.he} took {o.the} and {h.went} to {s2}, where {f} was sitting. \"I am sorry, {f},\" said "
            "{h}. \"Would you like to play with my {o.n}?\" \"Yes, please!\" said {f}. They played together until the sun went down, "
            "and it was much more fun than before. <share>",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [sharing makes everything better|a toy is best when it is "
        "shared].",
    ),
    Plot(
        "broken_vase", thing="vase", moods=("ashamed", "worried", "afraid"),
        beats=(
            "{e} had {o.a}. It stood on the table, and {e} loved it. \"Please do not touch it,\" {e} always said. But {h} was "
            "[running|dancing] in the house. Bump! The {o.n} fell down and broke.",
            "{h} was {mood}. {h.He} hid the pieces behind {s1} and {h.went} away. <meet> \"You look {mood},\" said {f}. \"What is "
            "wrong?\" {h} told {f} about {o.the}. \"You should tell the truth,\" said {f}. \"I will come with you.\"",
            "So {h} and {f} went to {e}. \"I broke your {o},\" said {h} in a small voice. \"I am very sorry.\" {e} was quiet for a "
            "moment. Then {e.he} [smiled|hugged {h}]. \"Thank you for telling me the truth,\" said {e}. \"The {o.n} was dear to me, "
            "but you are more dear.\" Together they glued the pieces, and soon the {o.n} stood on the table again.",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [the truth makes the heart light|it is always best to tell the "
        "truth].",
    ),
    Plot(
        "learn_skill", like="to dance", skills=(),
        # to do, did it, tried it, how it failed
        slots={"skill": [("whistle", "whistled", "blew", "only air came out"), ("dance", "danced", "turned", "{h.he} fell over"),
                         ("skate", "skated", "slid", "{h.he} sat down hard"),
                         ("juggle", "juggled", "threw three apples up", "they all fell down"),
                         ("play the flute", "played the flute", "blew", "it only squeaked"),
                         ("walk on stilts", "walked on stilts", "took a step", "{h.he} tumbled into the grass")]},
        beats=(
            "{h} saw {f}, {f.a}, by {s1}. {f} could {skill0} better than anyone. \"I want to {skill0} too,\" said {h}. {h.He} "
            "{skill2}, but {skill3}. {h} was {mood}. \"I will never learn to {skill0},\" {h.he} said.",
            "\"Nobody can do it the first time,\" said {f}. \"I tried a hundred times. [Try again|Do not give up]!\" So {h} tried "
            "again. {h.He} {skill2}, but {skill3}. {f} did not laugh. \"That was a little better,\" said {f}.",
            "Every day, {h} went to {s2} and tried to {skill0}. {h} tried in the morning and {h.he} tried in the evening. Then, one "
            "day, it worked! {h} {skill1} all the way from {s2} to {s3}. \"You did it!\" cried {f}. <happy>",
        ),
        moral="{h} had learned that [if you keep trying, you will get there|you only fail when you stop trying].",
    ),
    Plot(
        "race", moods=("nervous", "worried", "excited"), thing="treasure",
        beats=(
            "There was going to be a big race from {s1} to {s2}. The winner would get {o.a}. {h} was {mood}. \"I want to win {o.the}!\" "
            "said {h}. {f}, {f.a}, wanted to win too.",
            "\"Ready, steady, go!\" called {e}. Everyone ran. {h} was in front. {f} was right behind. Then {h} heard a cry. {f} had "
            "[tripped over a root|fallen over a stone] and could not get up. {h} looked at {s2}. It was so near! But {f} was hurt.",
            "{h} stopped and went back. \"Take my arm,\" said {h}. Together they walked slowly to {s2}. They were the very last. But "
            "everyone was clapping. \"{h} did not win the race,\" said {e}, \"but {h.he} has the biggest heart.\" And {e} gave {o.the} "
            "to {h}. \"[Thank you for coming back|You came back for me],\" said {f}.",
        ),
        moral="{h} was so happy. {h.He} had learned that [being kind is better than being first|a friend is worth more than a "
        "prize].",
    ),
    Plot(
        "birthday_gift", thing="wear", moods=("worried", "unsure", "sad"),
        beats=(
            "Tomorrow was the birthday of {f}, {f.a} who lived next door. {h} wanted to give {f} a present, but {h.he} had no money. "
            "{h} was {mood}. \"What can I give to {f}?\" {h.he} asked.",
            "{h} {h.went} to {e}. \"The best gifts are made with love,\" said {e}. \"I can show you how to make {o.a}.\" So {h} and {e} "
            "sat down and worked. {h} [cut and sewed|worked all day], and {e} helped with the hard parts. At last {o.the} was "
            "done.",
            "The next day there was a party by {s2}. There was {food} and there were many friends. {h} gave {f} the present. {f} "
            "opened it and {f.his} eyes grew wide. \"{o.A}! Did you make it?\" asked {f}. \"Yes,\" said {h}. {f} put on the {o.n} at "
            "once. \"It is the best present of all,\" {f.he} said.",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [a gift made with love is the best gift|love is worth more than "
        "money].",
    ),
    Plot(
        "plant_seed", like="to pick flowers", moods=("sad", "impatient", "worried"), weather=("fair", "wet"),
        slots={"plant": [("sunflower", "yellow"), ("rose", "red"), ("tulip", "pink"), ("pumpkin", "orange"), ("bluebell", "blue"),
                         ("lily", "white")]},
        beats=(
            "{e} gave {h} a tiny seed. \"If you take care of it, it will grow,\" said {e}. {h} dug a little hole near {s1} and put the "
            "seed in it. {h.He} gave it water every day.",
            "The first day, nothing grew. The second day, nothing grew. {h} was {mood}. \"My seed does not grow,\" {h.he} said. "
            "<meet> \"What are you looking at?\" asked {f}. \"My seed,\" said {h}. \"It will not grow.\" \"Seeds need sun and water and "
            "time,\" said {f}. \"Let us wait together.\"",
            "So {h} and {f} waited. They gave the seed water and sang songs to it. Then, one morning, there was a tiny green leaf. "
            "\"Look!\" cried {h}. The plant grew taller and taller. At last there was a big {plant1} {plant0}. It was the most "
            "beautiful {plant0} {p.inn}. <happy>",
        ),
        moral="{h} had learned that [good things take time|you must wait for good things].",
    ),
    Plot(
        "broken_bridge", moods=("worried", "tired", "wet"), skills=("strong", "build"), weather=("wet",),
        slots={"work": {"strong": "{f} was very strong. {f.He} carried the heavy logs one by one",
                        "build": "{f} knew how to build. {f.He} put the logs side by side and tied them with rope"}},
        beats=(
            "In the night there had been a big storm. The little bridge over {water} was broken. Nobody could cross. On the other side "
            "lived {e}, and {e.he} had nothing to eat. {h} was {mood}.",
            "{h} tried to put a log across {water}, but it was too heavy for {h.him}. {h.He} pushed and pushed. The log did not move. "
            "<help>",
            "{work}. {h} [fetched|brought] rope and nails. They worked from morning until evening, and the rain stopped at last. The "
            "new bridge was strong and wide. {h} ran across it with a basket of {food}. \"Thank you, {h}! Thank you, {f}!\" said {e}. "
            "They all ate {food} together.",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [many hands make light work|together we can do what one cannot].",
    ),
    Plot(
        "new_neighbor", like="to make new friends", moods=LONELY,
        beats=(
            "Somebody new had come to live {p.inn}. It was {f}, {f.a}. {f} sat alone by {s1} and looked {mood}. Nobody talked to "
            "{f.him}. {h} saw it and wanted to help.",
            "{h} {h.went} to {s1}. \"Hello, I am {h},\" {h.he} said. \"What is your name?\" \"My name is {f},\" said {f} in a small "
            "voice. \"I do not know anyone here.\" \"Now you know me,\" said {h}. \"Come, I will show you {p.the}!\"",
            "First {h} showed {f} {s2}. \"This is where we play,\" {h.he} said. Then {h.he} showed {f} {water}. \"This is where we "
            "swim.\" At last they came to {s3}. \"And this is where we eat {food},\" said {h}. All the others were there. \"This is "
            "my new friend {f},\" said {h}. \"Hello, {f}!\" they all said.",
        ),
        moral="{f} was not {mood} any more. {h} had learned that [one kind word can make a friend|a friend is just someone you have "
        "not met yet].",
    ),
    Plot(
        "winter_food", moods=("hungry", "cold", "tired"), weather=("cold",),
        beats=(
            "It was a hard winter, and there was not much to eat. {h} had only one bowl of {food} left. {h.He} sat by the fire and "
            "was about to eat it. Then there was a knock at the door.",
            "Outside stood {f}, {f.a}. {f.He} was {mood} and covered in snow. \"Please, may I come in?\" asked {f}. {h} looked at the "
            "{food}. There was only a little. But {h} smiled and said, \"Come in, come in! We will share.\" Then there was another "
            "knock. It was {e}. \"Come in, {e}!\" said {h}.",
            "They put all they had on the table. {f} had [a carrot|three nuts|some cheese] in {f.his} bag. {e} had [a potato|an apple|a "
            "pot of honey]. Together they made a big supper, and there was enough for everyone. They told stories and sang songs "
            "while the snow fell outside. Nobody was {mood} any more.",
        ),
        moral="{h} had learned that [when we share, there is always enough|sharing makes a little into a lot].",
    ),
    Plot(
        "lonely_star", like="to look at the stars", moods=LONELY, skills=("fly",),
        slots={"light": ["star", "moonbeam", "spark"]},
        beats=(
            "That night {h} could not sleep. {h.He} looked out and saw a light near {s1}. It was a tiny {light} that had fallen from "
            "the sky. \"Who are you?\" asked {h}. \"I am a little {light},\" it said. \"I fell down, and now I am {mood}. I want to go "
            "home to the sky.\"",
            "{h} picked up the {light} very gently. It was warm in {h.his} {h.hands}. \"I will help you,\" said {h}. {h.He} stood "
            "on {h.his} toes by {s2} and held it up, but the sky was too far away. <meet> \"Can you fly very high?\" asked {h}. \"Yes,\" said {f}. "
            "\"I can fly higher than anyone.\"",
            "{f} took the {light} and flew up, up, up, past the clouds. {h} watched from {s2}. Then there was a small flash in the "
            "sky, and the {light} was home. It shone brighter than all the others. {f} came back and sat next to {h}. \"It says thank "
            "you,\" said {f}. Every night after that, the {light} twinkled at {h}.",
        ),
        moral="The {light} was not {mood} any more. {h} had learned that [even the smallest can shine|no one is too small to be "
        "helped].",
    ),
    Plot(
        "strange_noise", moods=AFRAID,
        slots={"noise": [("Tap, tap, tap", "a woodpecker looking for his lunch"), ("Boom, boom, boom", "a little bear playing a "
                         "drum"), ("Whoo, whoo, whoo", "the wind blowing in an empty jug"), ("Rattle, rattle, rattle", "a loose "
                         "door that swung in the wind"), ("Snore, snore, snore", "an old dog sleeping in the shade")]},
        beats=(
            "Suddenly {h} heard a strange noise from behind {s1}. \"{noise0}!\" it went. {h} was {mood}. \"What can that be?\" "
            "{h.he} whispered. \"{noise0}!\" went the noise again.",
            "{h} ran away as fast as {h.he} could. By {s2} {h.he} bumped into {f}, {f.a}. \"There is a monster behind {s1}!\" said {h}. "
            "\"Did you see it?\" asked {f}. \"No,\" said {h}, \"but I heard it.\" \"Then let us go and see,\" said {f}. \"We will go "
            "together.\"",
            "They stayed close to each other and walked back slowly. \"{noise0}!\" went the noise. They came closer and closer. {h} closed "
            "{h.his} eyes. Then {f} began to laugh. \"Open your eyes, {h}!\" {f.he} said. {h} looked. There was no monster at all. It "
            "was only {noise1}. {h} laughed too.",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [it is better to look than to run|many scary things are not scary "
        "at all].",
    ),
    Plot(
        "treasure_map", like="to draw maps", thing="book", nouns=("map",), skills=("dig",), moods=("excited", "curious", "happy"),
        slots={"chest": ["full of golden coins", "full of shiny shells", "full of old toys", "full of colored stones"]},
        beats=(
            "Near {s1}, {h} found {o.a}. On the {o.n} there was a big red cross. \"It is a treasure map!\" said {h}. {h.He} was very "
            "{mood}.",
            "\"Start at {s1} and walk to {s2},\" said the {o.n}. {h} walked to {s2}. \"Now go to {tree},\" said the {o.n}, \"and dig.\" "
            "{h} went to {tree} and tried to dig, but the ground was too hard. <meet> \"I am good at digging,\" said {f}. \"If we find "
            "a treasure, we will share it,\" said {h}.",
            "{f} dug and dug until the hole was deep. Then there was a knock. \"It is a box!\" cried {f}. They pulled it out and opened "
            "it. The box was {chest}! \"We are rich!\" said {h}. They took the box home and gave something to everyone {p.inn}. "
            "{e} got the most beautiful piece of all.",
        ),
        moral="{h} kept {o.the} on the wall. {h.He} had learned that [the best treasure is a good friend|a treasure is best when it "
        "is shared].",
    ),
    Plot(
        "lost_way", like="to climb hills", moods=AFRAID, skills=("fly", "nose"), weather=("wet", "cold"),
        slots={"lead": {"fly": "{f} flew ahead from branch to branch, and {h} followed",
                        "nose": "{f} followed the smell of {food} with {f.his} nose, and {h} walked behind"}},
        beats=(
            "{h} was looking for [berries|flowers|mushrooms] and did not see how far {h.he} had gone. When {h.he} looked up, {h.he} "
            "did not know the way home. {h} was {mood}.",
            "{h} went to the left and came to {s1}. {h.He} went to the right and came to {s2}. Everything looked the same. \"I want to "
            "go home,\" {h.he} cried. <meet> \"Are you lost?\" asked {f}. \"Yes,\" said {h}. \"I live in a {h.home}, and {e} is "
            "waiting for me with {food}.\" \"I know the way,\" said {f}. \"Follow me.\"",
            "{lead}. They went past {s3} and over a hill. At last {h} saw a light. It was {h.his} own {h.home}! {e} stood at the door. "
            "\"There you are!\" said {e} and hugged {h}. \"{f} showed me the way,\" said {h}. \"Then {f} must stay for supper,\" said "
            "{e}. And they all ate {food}.",
        ),
        moral="{h} was not {mood} any more. {h.He} promised [never to go so far alone again|to look where {h.he} was going].",
    ),
    Plot(
        "sick_friend", moods=("sick", "weak", "sad"), thing="tool", nouns=("basket", "pot", "jug"), weather=("cold", "wet"),
        beats=(
            "{h} wanted to play with {h.his} friend {f}, {f.a}. But {f} did not come out. {h} {h.went} to the house of {f}. {f} lay in "
            "bed and was {mood}. \"I cannot play today,\" said {f}.",
            "{h} ran home and told {e}. \"Warm {food} and a good friend are the best medicine,\" said {e}. They filled {o.a} with "
            "{food}. {h} carried the {o.n} past {s1} and past {s2}. It was heavy, and the way was long, but {h} did not stop.",
            "\"I have something for you, {f},\" said {h}. {f} sat up and tried the {food}. Then {f.he} ate some more. {h} told "
            "funny stories until {f} laughed out loud. {h} came back the next day, and the next. On the third day, {f} jumped out of "
            "bed. \"I am well again!\" {f.he} cried. <thanks>",
        ),
        moral="{f} was not {mood} any more. {h} had learned that [a friend is the best medicine|a good friend comes when it is hard].",
    ),
    Plot(
        "grumpy_giant", moods=CROSS, skills=(),
        slots={"giant": [("giant", "in a big house"), ("dragon", "in a dark cave"), ("troll", "under a bridge"),
                         ("ogre", "in an old tower")],
               "why": ["I have a thorn in my foot", "my tooth hurts", "nobody ever comes to visit me", "I cannot sleep at night"]},
        beats=(
            "Not far from {s1}, {giant1}, there lived a big {giant0}. The {giant0} was always {mood}. He roared and stamped, and "
            "everyone ran away from him. \"Do not go there, {h},\" said {e}.",
            "But {h} asked, \"Why is the {giant0} so {mood}?\" Nobody knew. So {h} took some {food} and went to see. On the way "
            "{h.he} met {f}, {f.a}. \"I will come with you,\" said {f}. The {giant0} roared, \"Go away!\" {h} was afraid, but {h.he} "
            "said, \"Good morning. We brought you some {food}. Why are you so {mood}?\"",
            "The {giant0} looked surprised. \"Nobody ever asked me that,\" he said. \"I am {mood} because {why}.\" \"We can help you!\" "
            "said {h} and {f}. They helped him, and they stayed and talked all day. When they were done, the {giant0} smiled for the "
            "first time. \"Thank you, little friends,\" he said. After that he never roared again. He carried everyone around {p.the} "
            "on his back.",
        ),
        moral="The {giant0} was not {mood} any more. {h} had learned that [a kind word can melt a hard heart|you should ask before "
        "you run away].",
    ),
    Plot(
        "magic_wish", thing="treasure", moods=("excited", "surprised", "happy"),
        slots={"wish": [("a mountain of cake", "There was cake on the bed, cake on the floor and cake on the roof",
                         "{h} ate until {h.his} tummy hurt"),
                        ("to be very big", "{h} grew and grew until {h.his} head was in the clouds",
                         "{h} could not get into {h.his} {h.home} any more"),
                        ("no more rules", "Everyone {p.inn} shouted and pushed, and nobody helped",
                         "{h} could not sleep because of the noise"),
                        ("a hundred toys", "There were toys in every corner and toys up to the roof",
                         "there was no room left for {h}")]},
        beats=(
            "By {s1}, {h} found {o.a}. {h.He} rubbed it, and it began to glow. \"I am a magic {o.n},\" said a voice. \"I will give you "
            "two wishes.\" {h} was {mood}. \"I wish for {wish0}!\" {h.he} cried.",
            "Puff! {wish1}. At first it was wonderful. But soon {wish2}. \"Oh dear,\" said {h}. <meet> \"What have you done?\" asked "
            "{f}. {h} told {f} about the magic {o.n}. \"You have one wish left,\" said {f}. \"Think well this time.\"",
            "{h} thought and thought. {h.He} could wish for gold or for a crown. But {h.he} looked at {f} and said, \"I wish that "
            "everything is as it was before.\" Puff! Everything was as before. {o.The} did not glow any more. <share>",
        ),
        moral="{h} had learned that [the best things are the ones you already have|you should think before you wish].",
    ),
    Plot(
        "too_many_berries", moods=("greedy", "hungry", "stubborn"), thing="tool", nouns=("basket", "bucket", "wagon", "pot"),
        slots={"fruit": ["berries", "apples", "nuts", "cherries", "plums", "mushrooms"]},
        beats=(
            "{h} took {o.a} and went to pick {fruit} near {s1}. There were so many {fruit}! {h} filled the {o.n} to the top. But "
            "{h.he} was {mood} and wanted more.",
            "<meet> \"Hello, {h},\" said {f}. \"May I have some {fruit}?\" \"No, they are all mine,\" said {h}. {h.He} put more and more "
            "{fruit} on top. Then {h.he} started to go home. But {o.the} was too heavy. By {s2} it tipped over, and all the {fruit} "
            "rolled down the hill.",
            "{h} began to cry. Then {f} came and picked up the {fruit} one by one. \"Why do you help me?\" asked {h}. \"I did not give "
            "you any.\" \"Because you need help,\" said {f}. {h} was ashamed. \"I am sorry, {f},\" {h.he} said. \"Half of the {fruit} "
            "are for you.\" They carried {o.the} together, and {e} made something good to eat from the {fruit}.",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [it is better to share than to have too much|those who want all may "
        "lose all].",
    ),
    Plot(
        "hatch_egg", like="to collect leaves", moods=("impatient", "curious", "worried"), weather=("fair", "cold"),
        slots={"egg": [("blue", "bluebird"), ("white", "dove"), ("spotted", "quail"), ("green", "parrot"), ("brown", "wren")]},
        beats=(
            "Under {tree}, {h} found a {egg0} egg. It had fallen out of its nest, but it was not broken. \"Poor little egg,\" said "
            "{h}. {h.He} wrapped it in a soft [cloth|blanket] and kept it warm.",
            "{h} waited all day. The egg did not move. {h} was {mood}. \"When will it open?\" {h.he} asked. <meet> \"You cannot hurry an "
            "egg,\" said {f}. \"Keep it warm and wait. I will help you.\" When {h} was tired, {f} kept the egg warm. When {f} was "
            "tired, {h} kept it warm.",
            "On the third day there was a small sound. Crick, crack! The {egg0} egg opened and a tiny {egg1} looked out. \"Hello!\" "
            "said {h}. The little {egg1} ate and grew, and soon it could fly. It flew around {tree} and sang a song for {h} and "
            "{f}. <happy>",
        ),
        moral="The {egg1} came back to sing every morning. {h} had learned that [love and time make things grow|waiting is easier with "
        "a friend].",
    ),
    Plot(
        "build_house", like="to build things", moods=("tired", "cross", "sad"), skills=("build", "strong"), weather=("windy", "wet"),
        slots={"hut": ["hut", "tree house", "little house", "raft"],
               "work": {"build": "{f} showed {h} how to tie the sticks with rope and how to lay the boards straight",
                        "strong": "{f} carried big strong logs, and {h} put them in the right place"}},
        beats=(
            "{h} wanted to build a {hut} near {s1}. {h.He} was in a hurry. {h.He} put some sticks together very fast. \"Done!\" said {h}. "
            "But then the wind came, and the {hut} fell apart.",
            "{h} built the {hut} again, with leaves and mud. The rain came, and the {hut} fell apart again. {h} was {mood}. <help>",
            "{work}. \"Do not hurry,\" said {f}. \"Do it well.\" They worked for three days. At last the {hut} was ready. The wind blew "
            "and the rain fell, but the {hut} stood strong. {h} and {f} sat in it, warm and dry, and ate {food}. <thanks>",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [work that is done well lasts long|it is better to work slowly and "
        "well].",
    ),
    Plot(
        "stage_fright", like="to sing", moods=("nervous", "afraid", "shy"), weather=("fair",),
        slots={"act": [("sing a song", "sang", "song"), ("say a poem", "said every word of the poem", "poem"),
                       ("do a dance", "danced", "dance"), ("play the drum", "played the drum", "music"),
                       ("tell a story", "told the whole story", "story")]},
        beats=(
            "That evening there was going to be a big show by {s1}. {h} was going to {act0}. {h.He} had practiced for weeks. But now "
            "{h.he} was {mood}. \"Everyone will look at me,\" {h.he} thought.",
            "{h} hid behind {s2}. <meet> \"The show is about to start,\" said {f}. \"Why are you hiding?\" \"I am too {mood} to {act0},\" "
            "said {h}. {f} sat down next to {h}. \"Look only at me,\" said {f}. \"I will sit in front. It will be just like when we are "
            "alone.\"",
            "{h} took a deep breath and went up. There were so many faces! {h.His} knees were shaking. Then {h.he} saw {f}, who smiled. "
            "{h} {act1}, first very softly and then louder and louder. When the {act2} was over, everyone clapped and cheered. "
            "<proud>",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [a friend can make you brave|being brave is easier with a friend].",
    ),
    Plot(
        "stuck_in_mud", moods=AFRAID, skills=("strong",), weather=("wet",), thing="tool", nouns=("wagon", "basket", "bucket"),
        beats=(
            "{h} was bringing {o.a} full of {food} to {e}. \"Stay on the path,\" {e} had said. But {h} saw a shorter way by {s1}. The "
            "ground was soft and wet. Suddenly {h} sank into the mud up to {h.his} tummy.",
            "{h} pulled one leg, and {h.he} pulled the other leg. But the more {h.he} pulled, the deeper {h.he} sank. {h} was {mood}. "
            "\"Help! Help!\" {h.he} cried. {f}, {f.a}, heard the cry and came running. \"Hold still,\" said {f}. \"I will get you "
            "out.\"",
            "{f} held out a long branch. \"Hold on tight!\" said {f}. {h} held the branch, and {f} pulled with all {f.his} strength. "
            "Plop! {h} was free. {h.He} was brown with mud from head to toe, and both of them had to laugh. <thanks> They washed "
            "{o.the} in {water} and brought the {food} to {e}, on the path this time.",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [the short way is not always the best way|it is wise to stay on the "
        "path].",
    ),
    Plot(
        "trade_chain", thing="treasure", moods=("sad", "poor", "hopeful"),
        slots={"first": ["an apple", "a fish", "a loaf of bread", "a bunch of flowers"],
               "second": ["a warm blanket", "a pair of shoes", "a wooden spoon", "a ball of wool"]},
        beats=(
            "{h} had {o.a}, but {h.he} was {mood}. {e} was cold and hungry, and {h} wanted to help. \"I will take my {o.n} and see what "
            "I can get for it,\" said {h}. And off {h.he} went.",
            "By {s1} sat {f}, {f.a}. \"What a pretty {o.n}!\" said {f}. \"I will give you {first} for it.\" \"Thank you,\" said {h}, and "
            "took {first}. By {s2} sat {g}, {g.a}, who looked hungry. \"Please give me {first},\" said {g}. \"I will give you {second} "
            "for it.\" \"Gladly,\" said {h}.",
            "{h} {h.went} home and gave {second} to {e}. {e} was very happy. Then there was a knock at the door. It was {f}. \"I saw how "
            "kind you were,\" said {f}. \"You gave away everything to help. Here, you can have {o.the} back.\" And {f} put the {o.n} "
            "into {h}'s {h.hands}. <thanks>",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [those who give will get something back|a kind heart is the best "
        "treasure].",
    ),
    Plot(
        "cannot_sleep", like="to count the stars", moods=("tired", "sleepy", "restless"), weather=("fair", "cold"),
        beats=(
            "{h} had played all day long. Now the moon was shining, and {h} was {mood}. {h.He} lay in bed in {h.his} {h.home}, but "
            "{h.he} could not fall asleep.",
            "{h} turned to the left. {h} turned to the right. {h.He} counted sheep, but there were too many. So {h} got up and {h.went} "
            "outside. <meet> \"Can you not sleep?\" asked {f}. \"No,\" said {h}. \"I am {mood}, but my head is full of thoughts.\" "
            "\"Come and sit with me,\" said {f}.",
            "They sat down by {s3} and listened. The wind [sang|whispered] in {tree}. The water of {water} went splash, splash. "
            "\"What was the best thing today?\" asked {f}. \"I ate {food},\" said {h}, \"and I met you.\" {h} began to "
            "yawn. \"Good night, {h},\" said {f} softly. {h} went back to bed and closed {h.his} eyes. Soon {h.he} was asleep and "
            "dreamed sweet dreams.",
        ),
        moral="In the morning, {h} was not {mood} any more. {h.He} had learned that [a quiet talk helps a busy head|good thoughts bring "
        "good sleep].",
    ),
    Plot(
        "teasing", moods=("sad", "hurt", "angry"), thing="wear",
        beats=(
            "{h} was wearing {o.a}. {e} had made it, and {h} liked it. But {f}, {f.a}, laughed and said, \"What a silly {o.n}!\" {h} was "
            "{mood}. {h.He} took off the {o.n} and ran away.",
            "The next day was very cold. {h} put on {o.the} and {h.went} to {s1}. There sat {f}, shaking with cold. {f} had nothing warm "
            "to wear. {h} could have laughed at {f}. But {h.he} did not. \"You look cold,\" said {h}. \"Here, take my {o.n}.\"",
            "{f} put on {o.the}. It was soft and warm. {f} looked down. \"I was mean to you, and you are so kind to me,\" {f.he} said. \"I "
            "am sorry that I laughed.\" \"I forgive you,\" said {h}. Then {e} made another {o.n}, just like the first one, and "
            "now both of them had one.",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [kindness is stronger than mean words|it feels good to forgive].",
    ),
    Plot(
        "dark_festival", like="to hum little songs", moods=("worried", "sad", "disappointed"), thing="tool", nouns=("lantern",),
        beats=(
            "It was the day of the lantern festival. Everyone {p.inn} had a lantern, and {h} had {o.a}. They all met by {s1} when it got "
            "dark. But then a big wind came and blew out all the lights. Everyone was {mood}.",
            "\"Now there can be no festival,\" said {e}. But {h} looked at {h.his} {o.n}. Deep inside, there was still a tiny flame. "
            "{h.He} held it close and kept it safe from the wind with {h.his} {h.hands}. <meet> \"Your light is still on!\" said {f}. "
            "\"Yes,\" said {h}. \"Bring me your lantern.\"",
            "{h} lit the lantern of {f} with {h.his} own. Then {f} lit another one, and that one lit the next. Soon a hundred lanterns "
            "were shining {p.inn}. And the light of {h}'s {o.n} was just as bright as before. Everyone sang and danced and ate {food}. "
            "<proud>",
        ),
        moral="Nobody was {mood} any more. {h} had learned that [a light does not get smaller when you share it|one little light can "
        "light many].",
    ),
    Plot(
        "dry_land", moods=("thirsty", "worried", "tired"), skills=("dig",), weather=("hot",),
        beats=(
            "There was no more water in {water}. The flowers hung their heads, and everyone {p.inn} was {mood}. \"We need water,\" said "
            "{e}. {h} wanted to help.",
            "{h} looked for water near {s1}, but there was only dust. {h.He} looked near {s2}, but there were only dry stones. Then {h.he} "
            "saw that the grass near {tree} was still green. \"Why is the grass green here?\" {h} asked. <meet> \"There must be water "
            "deep down,\" said {f}. \"I can dig.\"",
            "{f} dug a hole, and {h} carried away the earth. They dug deeper and deeper. Suddenly the ground was wet. Then clear, cold "
            "water came up! \"Water! Water!\" cried {h}. Everyone came with pots and cups and drank. They gave some to the flowers "
            "too, and soon everything was green again. <proud>",
        ),
        moral="Nobody was {mood} any more. {h} had learned that [it pays to look closely|those who look closely find the answer].",
    ),
    Plot(
        "runaway_hat", like="to run in the wind", thing="wear", nouns=("hat", "cap", "scarf", "ribbon"), moods=("upset", "surprised", "sad"), weather=("windy",),
        skills=("swim",),
        beats=(
            "{h} was wearing {h.his} new {o}. Whoosh! The wind blew the {o.n} right off. \"Come back!\" cried {h}. But the {o.n} flew over "
            "{s1}, and {h} ran after it.",
            "The {o.n} flew past {s2}. {h} jumped, but {h.he} could not catch it. The {o.n} flew past {s3}. {h} ran faster, but the "
            "wind was faster still. At last {o.the} fell into {water}. {h} could not swim. {h.He} was {mood}. <meet> \"Is that your "
            "{o.n}?\" asked {f}. \"Yes,\" said {h}, \"but the water is too deep for me.\"",
            "Splash! {f} jumped in and swam to the {o.n}. {f.He} brought it back in no time. {o.The} was dripping wet. They hung it on "
            "{tree} to dry. While they waited, they ate {food} and told stories. <thanks>",
        ),
        moral="{h} was not {mood} any more. {h.He} [tied the {o.n} with a string|held on to the {o.n}] whenever the wind blew.",
    ),
    Plot(
        "boat_trip", like="to explore", moods=("excited", "curious", "cheerful"), skills=("swim", "build"),
        slots={"isle": ["full of flowers", "full of singing birds", "with a tiny castle", "with sweet red berries"],
               "save": {"swim": "{f} jumped into the water and pushed the boat with {f.his} feet",
                        "build": "{f} put a piece of wood over the hole and tied it with string"}},
        beats=(
            "{h} had a little boat. \"Today I will sail across {water},\" said {h}. {h.He} was very {mood}. <meet> \"May I come with you?\" "
            "asked {f}. \"Of course!\" said {h}. They took some {food} and got into the boat.",
            "The boat went up and down on the waves. {h} and {f} sang a song. Then, in the middle of {water}, the boat stopped. There was "
            "a hole in it, and water was coming in! \"What shall we do?\" cried {h}. \"Stay calm,\" said {f}. {save}. {h} "
            "scooped the water out with a cup.",
            "Soon they reached the other side. There they found a small island {isle}. They ate {food} and played until the sun was low. "
            "Then they sailed back home, slowly and carefully. {e} was waiting by {s1}. \"Tell me everything,\" said {e}, and they did.",
        ),
        moral="{h} had learned that [it helps to stay calm|two in a boat are better than one].",
    ),
    Plot(
        "market_coin", thing="toy", moods=("hungry", "cold", "sad"),
        beats=(
            "{e} gave {h} a coin. \"You may buy what you like,\" said {e}. {h} ran to the market. There {h.he} saw {o.a}. It was just what "
            "{h.he} had always wanted. It cost one coin.",
            "{h} was about to buy {o.the}. Then {h.he} saw {f}, {f.a}, sitting by {s1}. {f} looked {mood}. \"What is wrong?\" asked {h}. "
            "\"I have had nothing to eat today,\" said {f}. {h} looked at {o.the}. Then {h.he} looked at {f}. {h.He} took the coin and "
            "bought some warm {food}. \"This is for you,\" said {h}.",
            "{f} ate the {food} and smiled. \"Thank you,\" {f.he} said. \"Nobody was ever so kind to me.\" {h} went home without {o.the}, but "
            "{h.he} was happy. The next day, there was a box at the door. In the box was {o.the}, and a note. \"For a good friend, from "
            "{f},\" said the note. {f} had made it with {f.his} own {f.hands}.",
        ),
        moral="{f} was not {mood} any more. {h} had learned that [being kind is worth more than any toy|a good deed always comes back].",
    ),
    Plot(
        "letter", like="to read", thing="book", nouns=("letter", "card"), moods=("lonely", "sad", "worried"), weather=("wet", "windy"),
        skills=("fast", "fly"),
        beats=(
            "{e} had written {o.a}. \"This {o.n} is for {f},\" said {e}. \"{f} lives far away and feels {mood}. Can you bring it to "
            "{f.him}?\" \"Yes!\" said {h}, and put the {o.n} in a bag.",
            "{h} walked past {s1}. {g}, {g.a}, was playing there. \"Come and play with me!\" said {g}. \"Not now,\" said {h}. \"I must "
            "bring a {o.n}.\" {h} walked past {s2}. It began to rain, and {h} put the {o.n} under {h.his} arm to keep it dry. "
            "{h.He} walked and walked until {h.his} feet hurt.",
            "At last {h} came to the house of {f}, {f.a}. \"I have {o.a} for you,\" said {h}. {f} opened it and read. \"Dear {f}, you are "
            "not alone. We all think of you. Come and visit us!\" {f} smiled. \"Thank you for coming all this way, {h},\" said {f}. They "
            "had some {food}, and then they went back together. {e} was waiting for them.",
        ),
        moral="{f} was not {mood} any more. {h} had learned that [a few kind words can go a long way|one must keep a promise, even in "
        "the rain].",
    ),
    Plot(
        "baking", like="to bake", moods=("sad", "cross", "unhappy"), thing="vase", nouns=("bowl",),
        slots={"mix": [("salt", "sugar", "It tasted terrible"), ("mud", "flour", "It was brown and hard as a stone"),
                       ("pepper", "cinnamon", "It made {h.him} sneeze ten times"), ("sand", "sugar", "It crunched like gravel")]},
        beats=(
            "{h} wanted to bake a cake for {e}. {h.He} took {o.a} and mixed eggs and milk and butter. But {h} was in a hurry and took "
            "{mix0} instead of {mix1}. When the cake was done, {h} tried a bite. {mix2}!",
            "\"My cake is ruined,\" said {h}. {h.He} was {mood}. There was a knock at the door. It was {f}, {f.a}. \"It smells of cake "
            "here,\" said {f}. <tell> {f} laughed. \"I once did the same,\" said {f}. \"Let us bake it again. This time we will read "
            "everything twice.\"",
            "They washed the {o.n} and started again. {f} broke the eggs, and {h} poured the milk. \"Is this {mix1}?\" asked {f}. {h} tried "
            "it. \"Yes, it is {mix1},\" said {h}. The new cake was golden and sweet. They brought it to {e}, and {e} ate three pieces. "
            "\"This is the best cake I ever had,\" said {e}.",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [everyone makes mistakes, and you can always try again|a mistake is "
        "just a first try].",
    ),
    Plot(
        "too_small", hero_lacks=("strong",), moods=("sad", "left out", "small"), thing="treasure", nouns=("key", "ring", "coin", "bell"),
        beats=(
            "All the others were playing a game by {s1}. \"May I play too?\" asked {h}. \"No, you are too little,\" said {f}, {f.a}. {h} felt "
            "{mood}. {h.He} went away and sat by {s2}.",
            "Then there was a shout. {f} had dropped {o.a} into a narrow hole under {tree}. It belonged to {e}! {f} tried to reach it, "
            "but the hole was too narrow. {g}, {g.a}, tried too, but could not reach it either. \"What shall we do?\" cried {f}. "
            "\"Let me try,\" said a small voice. It was {h}.",
            "{h} was little enough. {h.He} crawled into the hole, deeper and deeper. It was dark, but {h} was not afraid. Then {h.he} "
            "felt something smooth. \"I have it!\" {h} called, and came out with {o.the}. Everyone cheered. \"I am sorry, {h},\" said "
            "{f}. \"You may be little, but you are great.\" And then they all played together.",
        ),
        moral="{h} did not feel {mood} any more. {h.He} had learned that [even the smallest can do great things|it does not matter how "
        "big you are].",
    ),
    Plot(
        "echo", like="to tell jokes", moods=("angry", "cross", "lonely"), thing="toy",
        beats=(
            "{h} was {mood} and shouted at a big rock wall. \"Go away!\" {h.he} shouted. \"Go away!\" said a voice. {h} was surprised. \"Who "
            "are you?\" {h.he} shouted. \"Who are you?\" said the voice.",
            "\"You are rude!\" shouted {h}. \"You are rude!\" said the voice. {h} stamped {h.his} foot and ran to {s1}. There was {f}, {f.a}. "
            "\"Somebody is being rude to me,\" said {h}. \"Somebody shouts at me from the rock wall.\" {f} smiled. \"What did you say "
            "first?\" asked {f}. \"I said, go away,\" said {h}. \"Then try something nice,\" said {f}.",
            "They went back to the rock wall together. \"Hello!\" called {h}. \"Hello!\" said the voice. \"You are nice!\" called {h}. \"You "
            "are nice!\" said the voice. {h} laughed. \"It is only an echo,\" said {f}. \"It gives back what you give.\" Then {h} and {f} "
            "sang a song, and the echo sang with them. <share>",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [if you are kind, kindness comes back to you|what you call out comes "
        "back to you].",
    ),
    Plot(
        "painting", like="to paint", moods=("bored", "sad", "gloomy"), weather=("wet", "cold"),
        slots={"item": ["fence", "door", "wall", "gate"], "color": ["yellow", "blue", "red", "green", "pink", "orange"]},
        beats=(
            "Everything looked so gray that {h} was {mood}. The old {item} by {s1} was the grayest of all. \"I wish there was some color "
            "here,\" said {h}.",
            "{h} {h.went} to {e}. \"I have an old pot of {color} paint,\" said {e}. \"You may have it.\" {h} thanked {e} and started to "
            "paint the {item}. But it was a very big {item}, and {h} was soon tired. <meet> \"What are you doing?\" asked {f}. \"I am "
            "making it {color},\" said {h}. \"May I help?\" asked {f}.",
            "{h} painted the left side, and {f} painted the right side. They painted flowers and birds and a big smiling sun. There was "
            "{color} paint on {h}'s nose and {color} paint on {f}'s ears. When the {item} was done, everyone came to look. "
            "\"How beautiful!\" they said. \"It makes us happy!\" <happy>",
        ),
        moral="{h} had learned that [you can bring color to a gray day|a little color can make everyone smile].",
    ),
    Plot(
        "snowman", moods=("sad", "worried", "lonely"), weather=("cold",), thing="wear", nouns=("hat", "scarf", "cap"),
        beats=(
            "{h} wanted to make a snowman. {h.He} rolled a big ball of snow and a small ball of snow. The snow was heavy. <meet> \"May I "
            "help?\" asked {f}. Together they put the small ball on the big one. The snowman had two stones for eyes and a carrot for a "
            "nose.",
            "\"He looks cold,\" said {h}. \"And he looks {mood}.\" {h} took off {h.his} {o} and gave it to the snowman. Now the snowman looked "
            "happy. {h} and {f} danced around him until it was dark. But then the sun grew warmer every day, and the snowman got "
            "smaller and smaller. Now {h} was {mood} too.",
            "\"He is going away,\" said {h}. {f} put {f.his} arm around {h}. \"He will come back next winter,\" said {f}. \"And look!\" Where "
            "the snowman had been, {o.the} lay on the ground, and next to it grew a little white flower. \"It is a present from the "
            "snowman,\" said {f}. {h} put on the {o.n} and smiled.",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [every goodbye brings something new|good friends come back].",
    ),
    Plot(
        "forgotten_promise", moods=("sad", "disappointed", "hurt"), thing="toy",
        beats=(
            "{h} had made a promise. \"I will meet you by {s1} at noon,\" {h.he} had said to {f}, {f.a}. But on the way {h.he} found {o.a}, "
            "and {h.he} began to play with it. {h} played and played and forgot the time.",
            "When the sun was low, {h} remembered. \"Oh no! {f} is waiting!\" {h.he} cried. {h.He} ran to {s1}. {f} was still there, all "
            "alone, and looked {mood}. \"You said you would come at noon,\" said {f}. {h} felt very bad.",
            "\"I am so sorry,\" said {h}. \"I found {o.a}, and I forgot my promise. That was wrong.\" {f} was quiet. Then {h} said, \"You may have "
            "{o.the}. And tomorrow I will be here before you.\" The next day, {h} got up very early and {h.went} to {s1}. When {f} came, "
            "{h} was already there with some {food}. \"You kept your promise,\" said {f} and smiled.",
        ),
        moral="{f} was not {mood} any more. {h} had learned that [a promise must be kept|a promise to a friend comes first].",
    ),
    Plot(
        "rescue_from_water", moods=AFRAID, skills=("swim",), thing="toy", nouns=("ball", "toy boat", "hoop"),
        beats=(
            "{h} was playing with {o.a} near {water}. The {o.n} rolled down and fell into the water. {h} leaned over to get it. {h.He} leaned "
            "too far. Splash! {h} fell in too.",
            "The water was cold and deep. \"Help! I cannot swim!\" cried {h}. {h.He} was very {mood}. Not far away, by {s1}, sat {f}, "
            "{f.a}. {f} heard the cry and jumped up. \"Hold on, I am coming!\" {f} shouted.",
            "{f} jumped into {water} and swam as fast as {f.he} could. {f.He} took {h} by the arm and pulled {h.him} back to the land. {h} "
            "was wet and cold, but {h.he} was safe. Then {f} swam out once more and brought back {o.the}. <thanks> They went to {e}, who "
            "wrapped them in blankets and gave them hot {food}.",
        ),
        moral="{h} was not {mood} any more. {h.He} never played so close to {water} again, and [{f} taught {h.him} how to swim|{h.he} never "
        "forgot what {f} had done].",
    ),
    Plot(
        "rainbow", like="to splash in puddles", moods=("bored", "sad", "grumpy"), weather=("wet",), thing="tool", nouns=("bucket", "jug", "pot"),
        beats=(
            "{h} could not play outside because of the rain. {h.He} was {mood}. Then the sun came out, and there was a rainbow over {p.the}. "
            "\"I want to find the end of the rainbow!\" said {h}. {h.He} took {o.a} to catch the colors and went off.",
            "<meet> \"Where are you going?\" asked {f}. \"To the end of the rainbow,\" said {h}. \"I will come too,\" said {f}. They walked to "
            "{s2}, but the rainbow was further away. They walked to {s3}, but the rainbow was further away still. On the way they "
            "jumped into puddles and sang and laughed.",
            "Then the rainbow was gone. {h} looked into {o.the}. It was empty. \"I did not catch any colors,\" said {h}. \"But look,\" said {f}. "
            "There was a red flower, a yellow leaf, a green frog and a blue butterfly. The colors were everywhere! {h} put the "
            "yellow leaf into the {o.n} and took it home for {e}.",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [the way is as good as the end|there are colors everywhere if you look].",
    ),
    Plot(
        "two_quarrel", moods=CROSS, thing="toy",
        beats=(
            "{h} and {h.his} friend {f}, {f.a}, found {o.a} by {s1}. \"It is mine! I saw it first!\" said {h}. \"No, it is mine! I picked it "
            "up!\" said {f}. Both of them were {mood}.",
            "{h} pulled on one side, and {f} pulled on the other side. They pulled and shouted until {o.the} fell into the dirt. Then {e} came "
            "by. \"What is all this noise?\" asked {e}. \"We both want {o.the},\" said {h} and {f}. \"I see,\" said {e}. \"Then you must "
            "find a way so that both of you are happy.\"",
            "{h} thought. {f} thought. \"You can have the {o.n} today,\" said {h}, \"and I can have it tomorrow.\" \"Or we could play with it "
            "together,\" said {f}. They looked at each other and began to laugh. \"Together is better!\" said {h}. They cleaned {o.the} and "
            "played with it near {s2} until it was time for {food}.",
        ),
        moral="They were not {mood} any more. {h} had learned that [it is better to play together than to fight|there is always a way to "
        "share].",
    ),
    Plot(
        "old_neighbor", like="to listen to stories", moods=LONELY, thing="wear", weather=("cold", "wet"),
        beats=(
            "Near {s1} stood a little old house. There lived {e}, all alone. Some said that {e} was mean, but {h} thought that {e} was only "
            "{mood}. \"Let us go and visit,\" said {h} to {h.his} friend {f}, {f.a}.",
            "{h} and {f} took some {food} and knocked at the door. At first nobody came. Then the door opened a little. \"What do you want?\" "
            "asked {e}. \"We brought you some {food},\" said {h}. {e} looked at them for a long time. Then {e.he} opened the door wide. "
            "\"Nobody has come to visit me for years,\" {e.he} said. \"Please, come in.\"",
            "They sat by the fire and ate. {e} told them wonderful stories of the sea and of far lands. Before they went home, {e} gave {h} "
            "{o.a}. \"I made it long ago,\" said {e}. \"It is for you, because you knocked.\" {h} put on the {o.n}. \"May we come again "
            "tomorrow?\" asked {f}. \"Come every day!\" said {e}.",
        ),
        moral="{e} was not {mood} any more. {h} had learned that [you should not believe everything that others say|a visit can make someone "
        "very happy].",
    ),
    Plot(
        "butterfly", like="to chase butterflies", moods=("proud", "curious", "excited"), thing="vase", nouns=("jar", "cup", "bowl"),
        slots={"color": ["yellow", "blue", "white", "orange"], "bug": ["butterfly", "firefly", "ladybug", "bee"]},
        beats=(
            "Near {s1}, {h} saw a pretty {color} {bug}. {h} caught it and put it in {o.a}. {h} was very {mood}. \"Now you are "
            "mine,\" said {h} to the {bug}.",
            "{h} showed the {o.n} to {f}, {f.a}. \"Look what I have!\" said {h}. {f} looked into {o.the}. \"It is pretty,\" said {f}, \"but it is not "
            "flying. I think it is sad.\" {h} looked too. The {color} {bug} sat still at the bottom and did not move. {h} did not feel "
            "{mood} any more. \"How would I feel if I had to live in a {o.n}?\" {h.he} thought.",
            "{h} and {f} went back to {s1}. {h} opened {o.the}. \"You are free,\" {h.he} said. The {bug} flew up into the air. It flew once around "
            "{h}'s head, as if to say thank you. Then it flew away over {tree}. The next day, the {color} {bug} came back, and it "
            "brought all its friends. They danced in the air around {h} and {f}.",
        ),
        moral="{h} had learned that [if you love something, you let it be free|beautiful things are most beautiful when they are free].",
    ),
    Plot(
        "clean_up", moods=("cross", "sad", "worried"), thing="tool", nouns=("basket", "bucket", "wagon"),
        beats=(
            "When {h} came to {s1}, {h.he} saw that there was a big mess. There was paper on the ground, and there were old cans in {water}. "
            "{h} was {mood}. \"Who made this mess?\" {h.he} asked. Nobody answered.",
            "\"It is not my mess,\" said {g}, {g.a}, and walked away. But {h} took {o.a} and began to pick up the cans, one by one. <meet> \"Why "
            "do you clean up?\" asked {f}. \"It is not your mess.\" \"But it is my home,\" said {h}. {f} thought about it. \"It is my home "
            "too,\" {f.he} said, and began to help.",
            "They filled {o.the} again and again. Then {g} came back and looked ashamed. \"I want to help too,\" said {g}. More and more "
            "came, and soon everyone was helping. When the evening came, {p.the} was clean, and {water} was clear again. They all sat "
            "down by {s2} and ate {food}. <proud>",
        ),
        moral="{h} was not {mood} any more. {h.He} had learned that [when one begins, others will follow|we must all take care of our home].",
    ),
    Plot(
        "moon_in_water", moods=("curious", "worried", "surprised"), thing="tool", nouns=("bucket", "basket", "pot"),
        beats=(
            "It got late, and {h} walked home past {water}. There, in the water, {h.he} saw the moon! \"The moon has fallen in!\" cried {h}. "
            "{h.He} was very {mood}. \"I must save it,\" {h.he} said.",
            "{h} fetched {o.a} and tried to scoop the moon out. But every time, the moon broke into many pieces and {o.the} was empty. <meet> "
            "\"What are you doing?\" asked {f}. \"The moon is in {water}, and I cannot get it out!\" said {h}. {f} wanted to help. They "
            "scooped together until they were both wet.",
            "At last they were so tired that they lay down on their backs. \"Oh!\" said {h}. High up in the sky was the moon, round and bright. "
            "\"We saved it!\" said {f}. \"It is back in the sky!\" They laughed and laughed. {h} took {o.the} and {h.went} home, and the moon "
            "lit the way.",
        ),
        moral="{e} smiled when {h} told {e.him} the story. \"[Sometimes you only need to look up|The moon is lucky to have you],\" said {e}.",
    ),
]
