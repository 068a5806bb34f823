-- A job is healthy once it has succeeded, as a batch Job is: a later sync wave waits for it.
local health = { status = "Progressing", message = "no condition yet" }
if obj.spec ~= nil and obj.spec.runPolicy ~= nil and obj.spec.runPolicy.suspend == true then
  health = { status = "Suspended", message = "the job is suspended" }
end
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    if condition.status == "True" then
      if condition.type == "Failed" then
        return { status = "Degraded", message = condition.message }
      elseif condition.type == "Succeeded" then
        return { status = "Healthy", message = condition.message }
      elseif condition.type == "Suspended" then
        health = { status = "Suspended", message = condition.message }
      elseif health.status ~= "Suspended" then
        health.message = condition.message
      end
    end
  end
end
return health
