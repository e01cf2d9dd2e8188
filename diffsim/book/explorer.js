(function () {
  var root = document.currentScript.parentElement;
  var frames = JSON.parse(root.querySelector("[data-frames]").textContent);
  var inputs = Array.prototype.slice.call(root.querySelectorAll("input[type=range]"));
  var picture = root.querySelector("[data-frame]");
  var say = root.querySelector("[data-say]");
  var play = root.querySelector("[data-play]");
  var timer = null;

  function draw() {
    var index = 0;
    inputs.forEach(function (input) {
      var texts = JSON.parse(input.dataset.texts);
      var text = texts[Number(input.value)];
      index = index * texts.length + Number(input.value);
      input.setAttribute("aria-valuetext", input.previousElementSibling.textContent + " " + text);
      input.nextElementSibling.textContent = text;
    });
    picture.innerHTML = frames[index].src;
    say.textContent = frames[index].say;
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    say.setAttribute("aria-live", "polite");
    play.textContent = "Play";
  }

  inputs.forEach(function (input) { input.addEventListener("input", draw); });
  if (play) {
    play.addEventListener("click", function () {
      if (timer) { stop(); return; }
      play.textContent = "Pause";
      say.setAttribute("aria-live", "off");
      if (inputs[0].value === inputs[0].max) { inputs[0].value = 0; draw(); }
      timer = setInterval(function () {
        inputs[0].value = Number(inputs[0].value) + 1;
        draw();
        if (inputs[0].value === inputs[0].max) { stop(); }
      }, 1000 * Number(play.dataset.seconds) / frames.length);
    });
  }
})();
