// Draws the pictures of a report: the data of each bucket is in its section.
import {Picture} from "./picture.js";

for (const section of document.querySelectorAll("section.bucket"))
  new Picture(section.querySelector(".picture"), JSON.parse(section.querySelector("script").textContent));
