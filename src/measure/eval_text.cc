#include "measure/eval_text.h"

namespace encore::measure {

// The text mixes prose, dialogue, numbers and code, so that a model meets likely and unlikely
// tokens.
const std::string_view kEvalText =
    R"(The lighthouse at the end of the peninsula had not been lit for eleven years when the council voted to restore it.
Nobody remembered who owned the key. Marta, who kept the ferry's accounts, found it in a drawer of her father's desk, under
a stack of tide tables and a letter that she had never been shown. The letter was short. It said that the lamp should burn
on the first night of November, whatever the weather, and that the reason would be clear to whoever lit it.

"You are not going up there alone," said her brother. "The stairs are rotten from the third landing on."

"Then come with me, and bring the long rope." She put the letter back into its envelope. "We leave at four."

They left at half past four, because he had to find the rope. The wind came from the northwest at about 35 kilometres an
hour, the barometer had fallen from 1013 to 996 hectopascals since the morning, and the sea was the colour of slate. On the
way they counted the boats in the harbour: seven trawlers, two yachts, and the pilot's launch. One mooring was empty.

A lens of the first order gathers light from a lamp no stronger than that of a kitchen and sends it more than thirty
kilometres out to sea. Augustin Fresnel saw that only the surfaces of a lens bend light, so that most of the glass between
them can be left out. What remains is a set of rings, each with the slope that the whole lens would have had at its place.
The rings of the old lamp were cracked in two places, and one had been replaced with a pane of window glass.

To compute how far the light is seen, one needs the height of the lamp and the height of the eye. The distance to the
horizon in kilometres is about 3.57 times the square root of the height in metres. A lamp at 49 metres and an eye at 4 give
25.0 and 7.1, so a helmsman sees the light at about 32 kilometres:

    def visible(lamp, eye):
        """Distance in kilometres at which a lamp can be seen, both heights in metres."""
        return 3.57 * (lamp ** 0.5 + eye ** 0.5)

    for eye in (2, 4, 9, 16):
        print(f"{eye:3d} m: {visible(49, eye):.1f} km")

At the third landing her brother tied the rope around the newel post and tested each step with his boot before he trusted
it. The door of the lantern room was swollen shut. They pushed together, and it opened so suddenly that both of them fell
over the sill. There was no dust on the floor. Somebody had swept it, filled the reservoir with oil, and trimmed the wick.

"Well," he said, after a while, "that explains the empty mooring."

She struck a match. It took three before the wick caught, and then the whole room filled with a yellow light that the rings
drew out into a single line across the water. Far out, where there should have been nothing at all, another light answered:
two long flashes, a pause of five seconds, and one short.
)";

}  // namespace encore::measure
